# row LibreOffice: bash {file}
# needs: soffice
python3 -c 'for i in range(15000): print(",".join(str(i * j) for j in range(12)))' > table.csv
HOME=$PWD soffice --headless --convert-to html --outdir out table.csv > /dev/null 2>&1
# When it was written is in there.
sed 's/<meta[^>]*>//g' out/table.html | md5sum
