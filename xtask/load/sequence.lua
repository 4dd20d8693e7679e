-- Numbered objects one after the other, and from the first again behind the last: `-- FOLDER FIRST COUNT`.
local folder, at, count, tail

function init(args)
  folder, at, count = "GET " .. args[1], tonumber(args[2]), tonumber(args[3])
  tail = " HTTP/1.1\r\nHost: " .. wrk.headers["Host"] .. "\r\n\r\n"
end

function request()
  local number = at % count
  at = at + 1
  return folder .. string.format("%d", number) .. tail
end
