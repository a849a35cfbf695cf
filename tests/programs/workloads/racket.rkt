;; row Racket: racket {file}
;; needs: racket
;; Its heap is below 2 GiB (MAP_32BIT).
#lang racket/base
(define texts (make-hash))
(for ([i (in-range 300000)]) (hash-set! texts (format "key ~a" i) (make-string 20 #\a)))
(define blocks (for/vector ([i (in-range 60)]) (make-bytes 1000000 (modulo i 250))))
(displayln (+ (for/sum ([(key text) (in-hash texts)]) (string-length text)) (for/sum ([block (in-vector blocks)]) (bytes-ref block 777))))
