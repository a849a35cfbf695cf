# row PHP: php {file}
# needs: php
<?php
ini_set('memory_limit', '-1');
$texts = [];
for ($i = 0; $i < 400000; $i++) $texts["key $i"] = str_repeat("text $i", 3);
$blocks = [];
for ($i = 0; $i < 60; $i++) $blocks[] = str_repeat(chr(65 + $i % 26), 1 << 20);
ksort($texts);
$sum = 0;
foreach ($texts as $key => $text) $sum += strlen($text) * ord($key[4]);
foreach ($blocks as $block) $sum += ord($block[77]);
echo $sum, " ", md5(serialize($texts)), "\n";
