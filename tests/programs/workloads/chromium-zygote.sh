# row chromium, headless, as usual: bash {file}
# needs: chromium
# users: user
# known user/thread: dies: its zygote may have one thread only
# known user/signal: dies: its zygote may have one thread only
exec bash "$(dirname "$0")/chromium.sh"
