# row ImageMagick: bash {file}
# needs: convert-im6.q16
# Its own limits would send it to files instead of memory.
export MAGICK_THREAD_LIMIT=4
convert-im6.q16 -seed 7 -size 2000x1500 gradient:red-blue -swirl 90 -blur 0x3 -rotate 17 -resize 50% -depth 8 two.ppm || echo "status $?"
sha256sum two.ppm
