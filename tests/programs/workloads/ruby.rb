# row ruby: ruby {file}
# needs: ruby
texts = {}
400_000.times { |i| texts[i] = "text #{i}" * 3 }
blocks = (0...60).map { |i| i.chr * (1 << 20) }
puts texts.values.sum(&:length) + blocks.sum { |block| block.getbyte(5) * block.length }
