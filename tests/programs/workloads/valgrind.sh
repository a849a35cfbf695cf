# row valgrind: bash {file}
# needs: valgrind
valgrind -q --log-file=/dev/null perl -e '
    my (%texts, $length);
    $texts{$_} = "text $_" for 1..60000;
    $length += length $texts{$_} for keys %texts;
    print "$length\n"'
