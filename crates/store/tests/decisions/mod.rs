//! A decision holds: decided once, in memory and after the death of the process, however a device answers; in
//! force without the hot level once it was acknowledged; and waited for by nobody else.

mod devices;
mod evacuated;
mod full;
mod latches;
mod life;
mod lives;
mod marks;
mod pass;
mod persist;
mod returning;
mod stalled;
mod unknown;
mod versions;
