;; row guile: guile --no-auto-compile {file}
;; needs: guile
(define count 1500000)
(define texts (make-vector count ""))
(do ((i 0 (+ i 1))) ((= i count)) (vector-set! texts i (number->string (* i 7919))))
(let loop ((i 0) (sum 0))
  (if (< i count) (loop (+ i 1) (+ sum (string-length (vector-ref texts i)))) (begin (display sum) (newline))))
