# row shellcheck (GHC): bash {file}
# needs: shellcheck
# A long script, with something to find in each of its functions.
for n in {1..180}; do
    printf 'f%d() {\n  local a=$1 b=%d\n  if [ $a == "$b" ]; then echo `ls $a`; fi\n  for x in $(cat "$a"); do echo $x; done\n}\nf%d $*\n' "$n" "$n" "$n"
done >script.sh
shellcheck -s bash -f gcc script.sh | sha256sum
echo "${PIPESTATUS[0]}"
