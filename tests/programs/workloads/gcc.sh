# row gcc: bash {file} gcc
# needs: gcc
# short:
# Functions and a table of them, enough for a compiler to need more than a hundred MiB.
awk 'BEGIN {
    for (i = 0; i < 3000; i++)
        printf "int f%d(int a, int b) { int s = %d; while (a--) s += b * a ^ %d; return s %% %d; }\n",
            i, i, i * 7919 % 1009, i % 13 + 5
    print "int (*table[])(int, int) = {"
    for (i = 0; i < 3000; i++) printf "f%d, ", i
    print "};"
}' >load.c
"$1" -O1 -w -c -o load.o load.c && sha256sum <load.o
