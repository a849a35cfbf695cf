# row Octave: octave-cli --norc --quiet {file}
# needs: octave-cli
a = reshape(mod((1:4000000) * 7919, 1000003), 2000, 2000);
b = a';
sorted = sort(a(:));
printf("%d %d %d\n", sum(sorted(1:1000)), mod(sum(sum(a .* b)), 1000000), rank(a(1:60, 1:60)));
