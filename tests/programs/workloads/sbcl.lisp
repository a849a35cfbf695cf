;; row SBCL: sbcl --script {file}
;; needs: sbcl
(let ((table (make-hash-table)) (blocks nil) (sum 0))
  (dotimes (i 400000) (setf (gethash i table) (format nil "item ~a" (mod (* i 7919) 1000))))
  (dotimes (i 80) (push (make-array (ash 1 20) :element-type '(unsigned-byte 8) :initial-element i) blocks))
  (maphash (lambda (key value) (incf sum (* key (length value)))) table)
  (dolist (block blocks) (incf sum (reduce #'+ block)))
  (format t "~a~%" sum))
