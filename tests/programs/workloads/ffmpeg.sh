# row ffmpeg: bash {file}
# needs: ffmpeg
ffmpeg -v error -f lavfi -i testsrc2=size=1280x720:rate=25:duration=2 -f lavfi -i sine=duration=2 -threads 4 \
    -c:v libx264 -preset fast -c:a aac -flags +bitexact -fflags +bitexact -f framemd5 - | sha256sum
exit "${PIPESTATUS[0]}"
