-- Asks a forward proxy, in absolute form: `-- URL AUTHORITY`.
local whole

function init(args)
  whole = "GET " .. args[1] .. " HTTP/1.1\r\nHost: " .. args[2] .. "\r\n\r\n"
end

function request() return whole end
