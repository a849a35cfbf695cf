//! Traces of real programs that come with the source: `trace/recorded/record` makes them.

/// numpy's sort of whole numbers.
pub const NUMPY_SORT: &[u8] = include_bytes!("../recorded/numpy-sort.trace");

/// All of them, with what they are of.
pub const ALL: [(&str, &[u8]); 5] = [
    ("numpy: a sort", NUMPY_SORT),
    ("python: a dict", include_bytes!("../recorded/python-dict.trace")),
    ("sqlite: an index", include_bytes!("../recorded/sqlite-index.trace")),
    ("node: a Map", include_bytes!("../recorded/node-map.trace")),
    ("gcc: 1200 functions", include_bytes!("../recorded/gcc.trace")),
];
