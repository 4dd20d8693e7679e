-- Numbered objects, each as likely as the others: `-- FOLDER COUNT SEED`.
local folder, count, tail

function init(args)
  folder, count = "GET " .. args[1], tonumber(args[2])
  tail = " HTTP/1.1\r\nHost: " .. wrk.headers["Host"] .. "\r\n\r\n"
  math.randomseed(tonumber(args[3]))
end

function request() return folder .. math.random(0, count - 1) .. tail end
