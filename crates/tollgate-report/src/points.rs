//! The points of a series: a bounded number is kept, and fewer may be drawn.
//!
//! Invariant: the greatest and the least value, of the whole and of any distinguishable stretch,
//! are never lost: a dropped value is between two kept ones. Peaks matter most for a limit.
#![expect(clippy::float_arithmetic, reason = "statistics and plots, no decision")]

/// Points that one series keeps.
pub const MAX_POINTS: usize = 8_192;

/// One point.
pub(crate) type Point = (f64, f64);

/// Points in the order of x.
#[derive(Clone, Debug, Default)]
pub(crate) struct Points {
    kept: Vec<Point>,
    /// Points with a coordinate that is not a number.
    dropped: u64,
}

impl Points {
    /// Adds a point. When there are too many, at most half of them are kept: of each stretch the
    /// first, the least, the greatest and the last.
    pub(crate) fn push(&mut self, point: Point) {
        if !(point.0.is_finite() && point.1.is_finite()) {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        if self.kept.len() >= MAX_POINTS {
            sort(&mut self.kept);
            self.kept = decimated(&self.kept, MAX_POINTS.div_euclid(8));
        }
        self.kept.push(point);
    }

    /// The points in the order of x; points with the same x in the order in which they came.
    pub(crate) fn sorted(&self) -> Vec<Point> {
        let mut points = self.kept.clone();
        sort(&mut points);
        points
    }

    /// The number of points that were not numbers.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }
}

fn sort(points: &mut [Point]) {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
}

/// Of points in the order of x at most four in each of `stretches` equal stretches of x: the first,
/// the least, the greatest and the last, in their order.
pub(crate) fn decimated(points: &[Point], stretches: usize) -> Vec<Point> {
    let stretches = stretches.max(1);
    if points.len() <= stretches.saturating_mul(4) {
        return points.to_vec();
    }
    let mut out = Vec::with_capacity(stretches.saturating_mul(4));
    for stretch in by_stretch(points, stretches) {
        keep_extremes(stretch, &mut out);
    }
    out
}

/// The points of each of `stretches` equal stretches of x, without the empty ones.
pub(crate) fn by_stretch(points: &[Point], stretches: usize) -> impl Iterator<Item = &[Point]> {
    let from = points.first().map_or(0.0, |point| point.0);
    let to = points.last().map_or(0.0, |point| point.0);
    let length = (to - from) / as_float(stretches.max(1));
    let place = move |point: &Point| {
        if length > 0.0 && length.is_finite() { ((point.0 - from) / length).floor() } else { 0.0 }
    };
    // The very last point belongs to the last stretch, and does not begin another.
    let last = as_float(stretches.max(1).saturating_sub(1));
    points.chunk_by(move |a, b| place(a).min(last) == place(b).min(last))
}

fn keep_extremes(stretch: &[Point], out: &mut Vec<Point>) {
    let places = |better: fn(f64, f64) -> bool| {
        let mut best: Option<(usize, f64)> = None;
        for (index, point) in stretch.iter().enumerate() {
            if best.is_none_or(|(_, y)| better(point.1, y)) {
                best = Some((index, point.1));
            }
        }
        best.map_or(0, |(index, _)| index)
    };
    let mut wanted = [
        0,
        places(|y, best| y < best),
        places(|y, best| y > best),
        stretch.len().saturating_sub(1),
    ];
    wanted.sort_unstable();
    let mut before = None;
    for index in wanted {
        if before != Some(index) {
            out.extend(stretch.get(index));
        }
        before = Some(index);
    }
}

/// A small count as a float; exact below 2^32.
pub(crate) fn as_float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(points: impl Iterator<Item = Point>) -> Points {
        let mut series = Points::default();
        points.for_each(|point| series.push(point));
        series
    }

    // A peak of one among a million, at any place, is drawn; so is a gap of one.
    #[test]
    fn peaks_never_vanish() {
        for at in [0_u32, 1, 123_457, 500_000, 999_998, 999_999] {
            let flat = (0..1_000_000_u32).map(|x| {
                let y = if x == at {
                    100.0
                } else if x == at / 2 + 7 {
                    -3.0
                } else {
                    5.0
                };
                (f64::from(x), y)
            });
            let kept = pushed(flat).sorted();
            assert!(kept.len() <= MAX_POINTS);
            for drawn in [decimated(&kept, 300), decimated(&kept, 1)] {
                assert!(drawn.contains(&(f64::from(at), 100.0)), "peak at {at}");
                assert!(drawn.iter().any(|point| point.1 == -3.0), "gap next to {at}");
                assert_eq!((drawn[0].0, drawn[drawn.len() - 1].0), (0.0, 999_999.0));
                assert!(drawn.is_sorted_by(|a, b| a.0 <= b.0));
            }
            assert!(decimated(&kept, 300).len() <= 1_200);
        }
    }

    #[test]
    fn whatever_x_is_the_number_of_points_is_bounded() {
        let ends = [-f64::MAX, f64::MAX].into_iter().cycle().zip(0..50_000);
        let ends = pushed(ends.map(|(x, y)| (x, f64::from(y)))).sorted();
        assert!(ends.len() <= MAX_POINTS && ends.iter().any(|point| point.1 == 49_999.0));
        let one = pushed((0..50_000).map(|y| (1.0, f64::from(y)))).sorted();
        assert!(one.len() <= MAX_POINTS && one.iter().any(|point| point.1 == 0.0));
    }

    #[test]
    fn what_is_no_number_is_counted() {
        let series = pushed([(0.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY)].into_iter());
        assert_eq!((series.sorted().len(), series.dropped()), (1, 2));
    }

    #[test]
    fn few_points_stay_as_they_are() {
        let points = [(3.0, 1.0), (1.0, 2.0), (1.0, 0.0)];
        assert_eq!(pushed(points.into_iter()).sorted(), [(1.0, 2.0), (1.0, 0.0), (3.0, 1.0)]);
        assert_eq!(decimated(&points, 300), points);
        assert_eq!(decimated(&[], 300), []);
        assert_eq!(decimated(&[(1.0, 1.0); 9], 2), [(1.0, 1.0); 2]);
    }
}
