# row Maxima (GCL): bash {file}
# needs: maxima
# All its memory is behind its data (brk).
export HOME=$PWD
maxima --very-quiet --batch-string='p: expand((x + y + z + 1)^14)$ q: expand(p * (x - 1))$ print(length(p), length(q))$' | tail -1
