-- Numbered objects of many hosts, the k-th in the ranking 1/k times as likely as the first: `-- FOLDER COUNT HOSTS SEED`.
-- All draws are made before the clock starts.
local DRAWS = 131072
local drawn = {}
local at = 0

function init(args)
  local folder, count, hosts = args[1], tonumber(args[2]), tonumber(args[3])
  math.randomseed(tonumber(args[4]))
  local sums, sum = {}, 0
  for rank = 1, count do
    sum = sum + 1 / rank
    sums[rank] = sum
  end
  for i = 1, DRAWS do
    local wanted, low, high = math.random() * sum, 1, count
    while low < high do
      local middle = math.floor((low + high) / 2)
      if sums[middle] < wanted then low = middle + 1 else high = middle end
    end
    local object = low - 1
    drawn[i] = "GET " .. folder .. object .. " HTTP/1.1\r\nHost: h" .. object % hosts .. ".test\r\n\r\n"
  end
end

function request()
  at = at % DRAWS + 1
  return drawn[at]
end
