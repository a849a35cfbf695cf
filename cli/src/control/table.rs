//! Columns of text.

/// Which way a column leans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lean {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows under their titles, every column as wide as its widest cell; ends with a line end.
pub fn table<const N: usize>(titles: [(&str, Lean); N], rows: &[[String; N]]) -> String {
    let head = titles.map(|(title, _)| title.to_owned());
    let lines = || std::iter::once(&head).chain(rows);
    let widths: [usize; N] = std::array::from_fn(|column| {
        lines().map(|line| line[column].chars().count()).max().unwrap_or(0)
    });
    let mut text = String::new();
    for line in lines() {
        let cells: Vec<_> = (0..N)
            .map(|column| match titles[column].1 {
                Lean::Left => format!("{:<1$}", line[column], widths[column]),
                Lean::Right => format!("{:>1$}", line[column], widths[column]),
            })
            .collect();
        text.push_str(cells.join(" ").trim_end());
        text.push('\n');
    }
    text
}

/// Text of a foreign program, without anything that a terminal would take for a command.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let titles = [("NAME", Lean::Left), ("SIZE", Lean::Right)];
        let rows = [["/var/tmp".to_owned(), "5".to_owned()], ["a".to_owned(), "1024M".to_owned()]];
        assert_eq!(table(titles, &rows), "NAME      SIZE\n/var/tmp     5\na        1024M\n");
        assert_eq!(table(titles, &[]), "NAME SIZE\n");
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\nc"), "a?[2Jb?c");
    }
}
