//! The table with the data of a plot.
//!
//! Invariant: it contains the least and the greatest value of every series. If there are few
//! points, each has its row. If there are many, a row is a stretch of x, with the least and
//! greatest value of each series.

use crate::plot::{Plot, Series};
use crate::points::{Point, by_stretch};
use crate::table::{Cell, Table};
use crate::words;

/// The most rows that a person reads, or listens to.
const MOST_ROWS: usize = 40;

impl Plot {
    /// The plot's data as a table: a row for each x of at most 40, else for each stretch of x.
    #[must_use]
    pub fn to_table(&self) -> Table {
        self.table_within(MOST_ROWS)
    }

    /// The same for programs: a row for each kept x, where no series has two values there.
    pub(crate) fn to_full_table(&self) -> Table {
        self.table_within(usize::MAX)
    }

    fn table_within(&self, most: usize) -> Table {
        let series: Vec<Vec<Point>> =
            self.series.iter().map(|series| series.points.sorted()).collect();
        let mut all: Vec<f64> = series.iter().flatten().map(|point| point.0).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        let is_whole = all.len() <= most && series.iter().all(|points| is_function(points));
        let table = Table::new(self.name.clone(), self.caption());
        if is_whole {
            self.by_point(table, &all, &series)
        } else {
            self.by_range(table, &all, &series)
        }
    }

    fn caption(&self) -> String {
        let mut caption = self.title.clone();
        for mark in &self.marks {
            let axis = if mark.is_level { &self.y } else { &self.x };
            caption.push_str(&format!("; {}: {}", mark.name, axis.words(mark.at)));
        }
        let dropped =
            self.series.iter().fold(0, |sum: u64, s| sum.saturating_add(s.points.dropped()));
        if dropped > 0 {
            caption.push_str(&format!("; {} points are not numbers", words::count(dropped)));
        }
        caption
    }

    fn by_point(&self, table: Table, all: &[f64], series: &[Vec<Point>]) -> Table {
        let mut table = table.column(self.x.column(&self.x.label, all.iter().copied()));
        for (Series { name, .. }, points) in self.series.iter().zip(series) {
            table = table.column(self.y.column(name, ys(points)));
        }
        for x in all {
            let value = |points: &Vec<Point>| {
                let place = points.partition_point(|point| point.0.total_cmp(x).is_lt());
                let found = points.get(place).filter(|point| point.0.total_cmp(x).is_eq());
                found.map_or(Cell::Empty, |point| self.y.cell(point.1))
            };
            table.push(std::iter::once(self.x.cell(*x)).chain(series.iter().map(value)));
        }
        table
    }

    fn by_range(&self, table: Table, all: &[f64], series: &[Vec<Point>]) -> Table {
        let label = &self.x.label;
        let mut table = table
            .column(self.x.column(&format!("{label}, from"), all.iter().copied()))
            .column(self.x.column("to", all.iter().copied()));
        for (Series { name, .. }, points) in self.series.iter().zip(series) {
            table = table.column(self.y.column(&format!("{name}, least"), ys(points)));
            table = table.column(self.y.column(&format!("{name}, greatest"), ys(points)));
        }
        let all: Vec<Point> = all.iter().map(|x| (*x, 0.0)).collect();
        for stretch in by_stretch(&all, MOST_ROWS) {
            let (Some((from, _)), Some((to, _))) = (stretch.first(), stretch.last()) else {
                continue;
            };
            let mut row = vec![self.x.cell(*from), self.x.cell(*to)];
            for points in series {
                let inside =
                    points.iter().filter(|(x, _)| from <= x && x <= to).map(|point| point.1);
                let least = inside.clone().min_by(f64::total_cmp);
                let greatest = inside.max_by(f64::total_cmp);
                row.extend([least, greatest].map(|y| y.map_or(Cell::Empty, |y| self.y.cell(y))));
            }
            table.push(row);
        }
        table
    }
}

/// True when no x has two values.
fn is_function(points: &[Point]) -> bool {
    points.is_sorted_by(|a, b| a.0 < b.0)
}

fn ys(points: &[Point]) -> impl Iterator<Item = f64> {
    points.iter().map(|point| point.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, MAX_POINTS, Shape};

    fn plot(points: u32) -> Plot {
        let ys = |top: u32| (0..points).map(move |x| (f64::from(x), f64::from(x.rem_euclid(top))));
        Plot::new("p", "title", Axis::duration("time"), Axis::count("requests"))
            .series(Series::new("a", Shape::Line).points(ys(10)))
            .series(Series::new("b", Shape::Line).points(ys(7).skip(1)))
    }

    #[test]
    fn few_points_stand_one_by_one() {
        let table = plot(3).to_table();
        assert_eq!(table.to_text(80), "time  a  b\n 0 s  0  -\n 1 s  1  1\n 2 s  2  2\n");
    }

    #[test]
    fn many_points_are_ranges_with_their_extremes() {
        let table = plot(1_000).to_table();
        assert_eq!(table.rows.len(), MOST_ROWS);
        for (least, greatest, top) in [(2, 3, 9), (4, 5, 6)] {
            let column = |index: usize| table.rows.iter().map(move |row| row[index].clone());
            assert!(column(least).all(|cell| cell == Cell::Count(0)));
            assert!(column(greatest).all(|cell| cell == Cell::Count(top)));
        }
        // For programs every kept point has its row.
        assert_eq!(plot(1_000).to_full_table().rows.len(), 1_000);
        let kept = plot(1_000_000).to_full_table().rows.len();
        assert!((2_000..=2 * MAX_POINTS).contains(&kept), "{kept}");
    }
}
