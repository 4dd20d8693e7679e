-- Names below a blocked one, in absolute form, for a forward proxy: `-- COUNT SEED`.
local count

function init(args)
  count = tonumber(args[1])
  math.randomseed(tonumber(args[2]))
end

function request()
  local host = "blocked" .. math.random(0, count - 1) .. ".example"
  return "GET http://" .. host .. "/page HTTP/1.1\r\nHost: " .. host .. "\r\n\r\n"
end
