-- row luajit: luajit {file}
-- needs: luajit
local texts, sum = {}, 0
for i = 1, 20000 do texts[i] = ("text " .. i):rep(400) end
for i = 1, 20000 do sum = sum + #texts[i] end
print(sum)
