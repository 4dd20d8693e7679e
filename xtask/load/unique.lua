-- Addresses that were never asked for before: `-- PREFIX`, which differs from run to run.
local before, after
local n = 0

function init(args)
  local whole = wrk.format()
  local cut = whole:find(" HTTP/1.1", 1, true)
  before = whole:sub(1, cut - 1) .. "?" .. args[1] .. "-"
  after = whole:sub(cut)
end

function request()
  n = n + 1
  return before .. n .. after
end
