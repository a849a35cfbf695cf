;; row Emacs: emacs --batch -Q -l {file}
;; needs: emacs
(let ((texts (make-hash-table :test 'equal)) (sum 0))
  (dotimes (i 200000) (puthash (format "key %d" i) (make-string 60 (+ 65 (% i 26))) texts))
  (maphash (lambda (_key text) (setq sum (+ sum (length text)))) texts)
  (with-temp-buffer
    (dotimes (i 200000) (insert (format "line %d of this\n" (* i 7919))))
    (sort-lines nil (point-min) (point-max))
    (princ (format "%d %s\n" sum (secure-hash 'sha256 (current-buffer))))))
