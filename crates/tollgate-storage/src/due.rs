//! When a rule of a request is charged.

/// The time at which a rule charges a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// When it is decided.
    Now,
    /// When it is decided; the response settles it.
    Held,
    /// When it is decided; it stays charged until the request ends.
    InFlight,
    /// When the response is known; until then it is only checked.
    Later,
    /// Never: the response showed that the charge used this many units, and the next decision
    /// settles it at them.
    Settled(u64),
    /// Not again: the request is still in flight, and the next decision confirms its charge.
    Renewed,
    /// The units were already used: the next decision records the cost, whatever this rule or
    /// another one decides, and never refunds it. It decides whether one unit would have fitted
    /// before; with a cost of 0 it does nothing else.
    Reported,
}

impl Due {
    /// True when nothing is decided: it is about a charge that was made.
    pub const fn is_settled(self) -> bool {
        match self {
            Self::Settled(_) | Self::Renewed => true,
            Self::Now | Self::Held | Self::InFlight | Self::Later | Self::Reported => false,
        }
    }
}
