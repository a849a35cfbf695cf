; row MIT Scheme: mit-scheme --quiet --load {file}
; needs: mit-scheme
; Its heap is at the lowest address that it finds free.
(define count 6000000)
(define numbers (make-vector count 0))
(define (fill i sum)
  (if (= i count) sum (begin (vector-set! numbers i (* i 7)) (fill (+ i 1) (+ sum (vector-ref numbers (quotient i 2)))))))
(display (fill 0 0))
(define (list-of n list) (if (= n 0) (length list) (list-of (- n 1) (cons n list))))
(newline)
(display (list-of 2000000 '()))
(newline)
(exit 0)
