//! A device that forgets, behind one that fails: the base of the tests of the log.

use crate::sim::{Fault, FaultyDevice, Operation, SimDevice};
use crate::warm::{BLOCK_BYTES, Buffer, Device};
use std::sync::Arc;
use std::time::Duration;

const DEVICE_BYTES: u64 = 64 << 20;

pub(super) struct Bed {
    pub(super) sim: Arc<SimDevice>,
    pub(super) faulty: Arc<FaultyDevice>,
}

impl Bed {
    pub(super) fn new() -> Bed {
        Bed::over(SimDevice::new("/dev/simulated", DEVICE_BYTES))
    }

    pub(super) fn over(sim: Arc<SimDevice>) -> Bed {
        Bed { faulty: FaultyDevice::new(sim.clone()), sim }
    }

    /// One whose next syncs take their time.
    pub(super) fn slow(pause: Duration) -> Bed {
        let bed = Bed::new();
        (0..1000).for_each(|skip| bed.fault(Operation::Sync, skip, Fault::Stalls(pause)));
        bed
    }

    /// Everything that it holds, on a device of its own.
    pub(super) fn copy(&self) -> Bed {
        // Of four seeds in a row the second keeps everything.
        Bed::over(self.sim.power_off(1))
    }

    pub(super) fn device(&self) -> Arc<dyn Device> {
        self.faulty.clone()
    }

    /// The operation of this kind after `skip` others of it goes wrong.
    pub(super) fn fault(&self, operation: Operation, skip: u64, fault: Fault) {
        self.faulty.inject(Some(operation), self.faulty.count(operation) + skip + 1, fault);
    }

    pub(super) fn count(&self, operation: Operation) -> u64 {
        self.faulty.count(operation)
    }

    /// Changes a file's bytes, durably, and its length where `change` does.
    pub(super) fn alter(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let (file, length) = self.sim.open(name).unwrap();
        let mut bytes = Buffer::new(length as usize);
        assert_eq!(self.sim.read(file, 0, &mut bytes).unwrap() as u64, length);
        let mut changed = bytes.to_vec();
        change(&mut changed);
        let mut file = file;
        if changed.len() as u64 != length {
            self.sim.remove(name).unwrap();
            file = self.sim.create(name, changed.len() as u64).unwrap();
            self.sim.sync_names().unwrap();
        }
        let mut bytes = Buffer::new(changed.len());
        assert!(changed.len().is_multiple_of(BLOCK_BYTES));
        bytes.copy_from_slice(&changed);
        assert_eq!(self.sim.write(file, 0, &bytes).unwrap(), changed.len());
        self.sim.sync(file).unwrap();
    }

    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.alter(name, |found| bytes.clone_from(found));
        bytes
    }
}
