; row CLISP: clisp -q -norc {file}
; needs: clisp
; Its heaps are at addresses of its own choice, where nothing can be managed.
(let ((texts (make-hash-table :test 'equal)) (sum 0))
  (dotimes (i 200000) (setf (gethash (format nil "key ~d" i) texts) (make-string 30)))
  (maphash (lambda (key text) (incf sum (+ (length key) (length text)))) texts)
  (print sum))
