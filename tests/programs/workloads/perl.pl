# row perl: perl {file}
# needs: perl
my (%texts, @blocks);
$texts{$_} = "text " . $_ x 3 for 1 .. 300000;
push @blocks, chr($_ % 256) x (1 << 20) for 1 .. 60;
my $sum = 0;
$sum += length $texts{$_} for 1 .. 300000;
$sum += unpack("%32C*", $_) for @blocks;
print "$sum\n";
