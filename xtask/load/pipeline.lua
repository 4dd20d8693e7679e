-- A batch of requests in one write: `-- DEPTH`.
local batch

function init(args)
  local all = {}
  for i = 1, tonumber(args[1]) do all[i] = wrk.format() end
  batch = table.concat(all)
end

function request() return batch end
