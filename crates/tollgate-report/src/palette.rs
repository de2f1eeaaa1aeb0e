//! The colours of pages and plots, light and dark.
//!
//! Invariant, computed by tests: the contrast to the ground is at least 4.5 for text and at least 3
//! for drawings (WCAG 2.2, 1.4.3 and 1.4.11). The colours of series are distinguishable with each
//! kind of colour blindness. Colour is never the only difference: lines have dashes, points have
//! forms, surfaces have patterns.

/// Light or dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// The colours of a theme, as `#rrggbb`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    pub(crate) ground: &'static str,
    pub(crate) text: &'static str,
    /// Captions, axes, notes: readable, but not prominent.
    pub(crate) quiet: &'static str,
    /// Thin lines that only guide the eye; they carry no information of their own.
    pub(crate) hair: &'static str,
    pub(crate) series: [&'static str; SERIES],
}

/// Distinguishable series of a plot.
pub(crate) const SERIES: usize = 6;

impl Theme {
    /// The colours of the theme.
    pub(crate) const fn palette(self) -> Palette {
        match self {
            Self::Light => Palette {
                ground: "#fffffb",
                text: "#1b1b1a",
                quiet: "#5c5b57",
                hair: "#dddcd5",
                series: ["#0b62a4", "#c2410c", "#04834e", "#68206e", "#453a14", "#3e424e"],
            },
            Self::Dark => Palette {
                ground: "#15171a",
                text: "#e9e7e1",
                quiet: "#a9a7a1",
                hair: "#34373c",
                series: ["#6cb4f0", "#ff8f5a", "#95f6c4", "#ca52b5", "#f4eb5b", "#bcc0c6"],
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::float_arithmetic, clippy::arithmetic_side_effects, reason = "colours")]

    use super::*;

    /// Linear red, green and blue, 0 to 1 (IEC 61966-2-1).
    fn linear(color: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let byte = u8::from_str_radix(&color[at..at + 2], 16).unwrap();
            let part = f64::from(byte) / 255.0;
            if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn luminance([red, green, blue]: [f64; 3]) -> f64 {
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    /// WCAG 2.2, "contrast ratio".
    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(linear(a)), luminance(linear(b)));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// CIE L*a*b* under D65.
    fn lab([red, green, blue]: [f64; 3]) -> [f64; 3] {
        let f = |t: f64| if t > 0.008_856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let x = f((0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505);
        let y = f(luminance([red, green, blue]));
        let z = f((0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    fn distance(a: [f64; 3], b: [f64; 3]) -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
    }

    /// The perception of colours without colour blindness, and with each kind of complete colour
    /// blindness: Machado, Oliveira, Fernandes, "A Physiologically-based Model for Simulation of
    /// Color Vision Deficiency" (2009), severity 1.
    const SIGHTS: [(&str, [[f64; 3]; 3]); 4] = [
        ("all colours", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        (
            "protanopia",
            [
                [0.152_286, 1.052_583, -0.204_868],
                [0.114_503, 0.786_281, 0.099_216],
                [-0.003_882, -0.048_116, 1.051_998],
            ],
        ),
        (
            "deuteranopia",
            [
                [0.367_322, 0.860_646, -0.227_968],
                [0.280_085, 0.672_501, 0.047_413],
                [-0.011_820, 0.042_940, 0.968_881],
            ],
        ),
        (
            "tritanopia",
            [
                [1.255_528, -0.076_749, -0.178_779],
                [-0.078_411, 0.930_809, 0.147_602],
                [0.004_733, 0.691_367, 0.303_900],
            ],
        ),
    ];

    fn seen(color: &str, sight: [[f64; 3]; 3]) -> [f64; 3] {
        let color = linear(color);
        sight.map(|row| {
            row.iter().zip(color).map(|(weight, part)| weight * part).sum::<f64>().clamp(0.0, 1.0)
        })
    }

    #[test]
    fn the_measures_are_those_of_the_specification() {
        assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 1e-9);
        assert!((contrast("#777777", "#ffffff") - 4.478).abs() < 1e-3);
        let red_on_green = distance(lab(linear("#ff0000")), lab(linear("#00ff00")));
        assert!((red_on_green - 170.6).abs() < 0.5, "{red_on_green}");
    }

    #[test]
    fn everything_can_be_read() {
        for theme in [Theme::Light, Theme::Dark] {
            let palette = theme.palette();
            let texts = [palette.text, palette.quiet];
            // Labels of series have their series' colour, so they are text, too.
            for color in texts.iter().chain(&palette.series) {
                let ratio = contrast(color, palette.ground);
                assert!(ratio >= 4.5, "{theme:?}: {color} has {ratio:.2}");
            }
        }
    }

    #[test]
    fn all_readers_can_distinguish_series() {
        for theme in [Theme::Light, Theme::Dark] {
            let series = theme.palette().series;
            for (name, sight) in SIGHTS {
                for (index, a) in series.iter().enumerate() {
                    for b in &series[index + 1..] {
                        let apart = distance(lab(seen(a, sight)), lab(seen(b, sight)));
                        assert!(apart >= 14.0, "{theme:?}, {name}: {a} and {b}: {apart:.1}");
                    }
                }
            }
        }
    }
}
