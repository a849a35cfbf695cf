# row R: Rscript --vanilla {file}
# needs: Rscript
set.seed(1)
n <- 2e6
table <- data.frame(key = (seq_len(n) * 7919) %% 1000, value = runif(n))
sums <- aggregate(value ~ key, table, sum)
ordered <- table[order(table$value), ]
fit <- lm(value ~ key, table)
cat(sprintf("%.6f %.6f %.9f\n", sums$value[6], ordered$value[n / 2], coef(fit)[1]))
