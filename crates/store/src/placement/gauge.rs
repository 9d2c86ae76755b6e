//! The fill of the warm level by kind of data, for inhibit.

use crate::inhibit::{WarmBytes, WarmFill, WarmGauge};
use forebay_media::bytes::Stream;
use forebay_media::warm::{Phase, Warm};

impl WarmGauge for Warm {
    fn warm_fill(&self) -> WarmFill {
        let stalled =
            self.devices().into_iter().find(|device| device.stalled || device.resting).map(|device| device.name);
        WarmFill { fill: self.fill(), free_containers: self.free_containers(), stalled }
    }

    fn warm_bytes(&self) -> WarmBytes {
        let mut bytes = WarmBytes::default();
        for container in self.containers() {
            let header = &container.header;
            bytes.all += header.container_bytes;
            if matches!(container.phase, Phase::Empty | Phase::Reclaiming | Phase::Lost) {
                continue;
            }
            let used = header.data_end.min(header.container_bytes);
            let live = match header.fragments {
                0 => 0,
                fragments => {
                    let share = f64::from(container.live_fragments) / fragments as f64;
                    (used as f64 * share.min(1.0)) as u64
                }
            };
            bytes.dead += used - live;
            *match header.stream {
                Stream::Accepted(_) | Stream::Shared => &mut bytes.accepted,
                Stream::Debug => &mut bytes.debug,
                Stream::Recording(_) => &mut bytes.recorded,
                Stream::Undecided => &mut bytes.undecided,
            } += live;
        }
        bytes
    }
}
