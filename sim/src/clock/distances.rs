//! How far nodes are from each other, and what that makes of a cost. Distances are those of the firmware (`numactl -H`): 10 is
//! a node's own memory, 20 takes twice as long.

use super::Ns;

/// A node's distance to itself.
pub const DISTANCE_OWN: u32 = 10;
/// Between two nodes of which nothing is said.
const DISTANCE_OTHER: u32 = 20;

/// The distances of a machine's nodes.
#[derive(Clone, Debug)]
pub struct Distances {
    nodes: u32,
    /// By node; without it all others are equally far.
    rows: Option<Vec<Row>>,
}

/// One node's.
#[derive(Clone, Debug)]
struct Row {
    distances: Vec<u32>,
    nearest: Vec<u32>,
}

impl Distances {
    /// Of nodes that are equally far from each other.
    pub fn equal(nodes: u32) -> Self {
        Self { nodes, rows: None }
    }

    /// With a row for each node.
    pub fn new(rows: Vec<Vec<u32>>) -> Self {
        let nodes = rows.len() as u32;
        let row = |(node, distances): (u32, Vec<u32>)| {
            let mut nearest: Vec<u32> = in_turn(nodes, node).collect();
            nearest.sort_by_key(|other| (*other != node, distances[*other as usize]));
            Row { distances, nearest }
        };
        Self { nodes, rows: Some((0..).zip(rows).map(row).collect()) }
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// How far one node is from another.
    pub fn between(&self, from: u32, to: u32) -> u32 {
        match &self.rows {
            Some(rows) => rows[from as usize].distances[to as usize],
            None if from == to => DISTANCE_OWN,
            None => DISTANCE_OTHER,
        }
    }

    /// All nodes, the nearest first; of equally far ones those that follow by number, so that neighbours differ in whom
    /// they ask.
    pub fn nearest(&self, from: u32) -> impl Iterator<Item = u32> + '_ {
        let sorted = self.rows.as_ref().map(|rows| &rows[from as usize].nearest);
        in_turn(self.nodes, from)
            .enumerate()
            .map(move |(index, next)| sorted.map_or(next, |sorted| sorted[index]))
    }
}

/// All nodes by number, from one on.
fn in_turn(nodes: u32, from: u32) -> impl Iterator<Item = u32> {
    (0..nodes).map(move |step| (from + step) % nodes)
}

/// A cost that grows with distance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reach {
    /// At the distance 10.
    pub own: Ns,
    /// At the distance 20.
    pub other: Ns,
}

impl Reach {
    /// On the line through both.
    pub fn at(self, distance: u32) -> Ns {
        let (own, other) = (self.own as i64, self.other as i64);
        let more = i64::from(distance) - i64::from(DISTANCE_OWN);
        (own + (other - own) * more / i64::from(DISTANCE_OTHER - DISTANCE_OWN)).max(0) as Ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_grows_in_proportion() {
        let reach = Reach { own: 100, other: 150 };
        assert_eq!([10, 15, 20, 30].map(|distance| reach.at(distance)), [100, 125, 150, 200]);
        assert_eq!(Reach { own: 100, other: 20 }.at(40), 0, "and is never below nothing");
    }

    #[test]
    fn the_nearest_node_is_asked_first_and_equally_far_ones_in_turn() {
        let order = |distances: &Distances, node| distances.nearest(node).collect::<Vec<_>>();
        let equal = Distances::equal(4);
        assert_eq!((order(&equal, 0), order(&equal, 2)), (vec![0, 1, 2, 3], vec![2, 3, 0, 1]));
        assert_eq!((equal.between(1, 1), equal.between(1, 3)), (10, 20));
        // Two pairs, and a node's own memory first even where another's is as near.
        let far = vec![
            vec![10, 32, 10, 32],
            vec![32, 10, 32, 12],
            vec![12, 32, 10, 32],
            vec![32, 12, 32, 10],
        ];
        let pairs = Distances::new(far);
        assert_eq!((order(&pairs, 0), order(&pairs, 3)), (vec![0, 2, 1, 3], vec![3, 1, 0, 2]));
        assert_eq!((pairs.between(0, 1), pairs.between(1, 3)), (32, 12));
    }
}
