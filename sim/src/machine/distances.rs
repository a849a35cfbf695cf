//! `distances` of a scenario file: the matrix that `numactl -H` prints, a row for each node.

use std::fmt;

use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};

use super::Impossible;
use crate::clock::DISTANCE_OWN;

/// The largest: the firmware's 255 is a node that cannot be reached.
const DISTANCE_MAX: u32 = 254;

/// Its rows as they are in the file.
#[derive(Clone, Debug)]
pub struct Matrix(Vec<toml::Spanned<toml::Value>>);

impl<'de> Deserialize<'de> for Matrix {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Rows)
    }
}

struct Rows;

impl<'de> Visitor<'de> for Rows {
    type Value = Matrix;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row of distances for each node: use [[10, 20], [20, 10]] for two nodes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Matrix, A::Error> {
        let mut rows = Vec::new();
        while let Some(row) = from.next_element()? {
            rows.push(row);
        }
        Ok(Matrix(rows))
    }
}

impl Matrix {
    /// The distances of so many nodes; `at` is where all of it is.
    ///
    /// # Errors
    /// Not as many rows, or distances in a row, as nodes; or what is no distance.
    pub fn check(
        &self,
        at: std::ops::Range<usize>,
        nodes: u32,
    ) -> Result<Vec<Vec<u32>>, Impossible> {
        if self.0.len() != nodes as usize {
            let message =
                format!("{} rows of distances: use {nodes}, one for each node", self.0.len());
            return Err(Impossible::new(at, message));
        }
        let row = |(node, row): (usize, &toml::Spanned<toml::Value>)| {
            check_row(row.get_ref(), node, nodes)
                .map_err(|message| Impossible::new(row.span(), message))
        };
        self.0.iter().enumerate().map(row).collect()
    }
}

fn check_row(row: &toml::Value, node: usize, nodes: u32) -> Result<Vec<u32>, String> {
    match row {
        toml::Value::Array(row) if row.len() == nodes as usize => {
            let of = |(other, value)| check_distance(value, node, other);
            row.iter().enumerate().map(of).collect()
        }
        toml::Value::Array(row) => {
            Err(format!("{} distances of node {node}: use {nodes}, one for each node", row.len()))
        }
        _ => Err(format!("{row} is no row of distances: use {nodes} in brackets")),
    }
}

fn check_distance(value: &toml::Value, node: usize, other: usize) -> Result<u32, String> {
    let distance = value.as_integer().and_then(|number| u32::try_from(number).ok());
    match distance {
        Some(distance) if node == other && distance != DISTANCE_OWN => {
            Err(format!("distance {value} of node {node} to itself: use {DISTANCE_OWN}"))
        }
        Some(distance @ DISTANCE_OWN..=DISTANCE_MAX) => Ok(distance),
        _ => Err(format!(
            "distance {value}: use a whole number from {DISTANCE_OWN} to {DISTANCE_MAX}"
        )),
    }
}
