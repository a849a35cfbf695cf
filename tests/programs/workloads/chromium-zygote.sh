# row chromium, headless, as usual: bash {file}
# needs: chromium
# users: user
exec bash "$(dirname "$0")/chromium.sh"
