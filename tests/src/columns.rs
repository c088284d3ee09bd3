//! Aligned columns of text.

/// Lines of cells, each column as wide as its longest cell. `right`: the columns that are aligned right.
pub fn columns(rows: &[Vec<String>], right: &[usize]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if right.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::columns;

    #[test]
    fn a_column_is_as_wide_as_its_longest_cell() {
        let rows = [
            ["", "left to right", "back"],
            ["TCP", "0.51 Gb/s", "failed: no route"],
            ["round trip", "1", ""],
        ];
        let rows = rows.map(|row| row.map(String::from).to_vec());
        assert_eq!(
            columns(&rows, &[1]),
            "            left to right  back\n\
             TCP             0.51 Gb/s  failed: no route\n\
             round trip              1\n"
        );
    }
}
