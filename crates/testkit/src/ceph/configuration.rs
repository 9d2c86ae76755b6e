//! The configuration of the test's Ceph, and the keys of its daemons.

use super::Result;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Identities; nobody else can see this cluster.
pub(super) const FSID: &str = "7f0be5a1-0000-4000-8000-000000000001";
pub(super) const OSD: &str = "7f0be5a1-0000-4000-8000-000000000002";

/// Of an OSD in memory, which loses all with its process.
pub(super) const MEMORY: &str = "osd_objectstore = memstore
memstore_device_bytes = 8589934592";
/// Of an OSD on the disk, in a sparse file: what it answered is there after a kill.
pub(super) const DISK: &str = "osd_objectstore = bluestore
bluestore_block_size = 4294967296
bluestore_cache_autotune = false
bluestore_cache_size = 67108864";

/// Writes `ceph.conf` and `keyring`, for an OSD in memory or on the disk.
pub(super) fn write(folder: &Path, osd: &str, monitor: u16, gateway: u16) -> Result<()> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let dir = folder.display();
    let text = format!(
        "[global]
fsid = {FSID}
mon_initial_members = a
mon_host = [v2:127.0.0.1:{monitor}]
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
keyring = {dir}/keyring
run_dir = {dir}
log_file = {dir}/$name.log
crash_dir = {dir}
log_to_syslog = false
ms_bind_msgr1 = false
mon_cluster_log_file = {dir}/cluster.log
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
admin_socket =

[mon]
mon_data = {dir}/mon
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_warn_on_insecure_global_id_reclaim_allowed = false
auth_allow_insecure_global_id_reclaim = false
mon_max_pg_per_osd = 1000
# a temporary folder may be on a full disk
mon_data_avail_warn = 1
mon_data_avail_crit = 0
# changes of maps at once: a pool takes 0.1 s, not 1 s
paxos_propose_interval = 0.05
paxos_min_wait = 0.01

[mgr]
mgr_data = {dir}/mgr
mgr_initial_modules =

[osd]
osd_data = {dir}/osd
{osd}
osd_max_object_name_len = 256
osd_max_object_namespace_len = 64
osd_class_update_on_start = false

[client.rgw]
rgw_data = {dir}/rgw
# small answers wait 40 ms for the acknowledgement of their head without it
rgw_frontends = beast endpoint=127.0.0.1:{gateway} tcp_nodelay=1
rgw_rados_pool_pg_num_min = 4
rgw_dynamic_resharding = false
rgw_thread_pool_size = 32
"
    );
    fs::write(folder.join("ceph.conf"), text).map_err(failed)?;
    for name in ["mon", "mgr", "rgw"] {
        fs::create_dir_all(folder.join(name)).map_err(failed)?;
    }
    // One keyring for all, given to the monitor with its store: no round trips for keys later.
    let all = "allow *";
    let keys: [(&str, &[(&str, &str)]); 5] = [
        ("mon.", &[("mon", all)]),
        ("client.admin", &[("mon", all), ("osd", all), ("mgr", all)]),
        ("mgr.x", &[("mon", "allow profile mgr"), ("osd", all), ("mds", all)]),
        ("osd.0", &[("mon", "allow profile osd"), ("mgr", "allow profile osd"), ("osd", all)]),
        ("client.rgw", &[("mon", "allow rw"), ("mgr", "allow rw"), ("osd", "allow rwx")]),
    ];
    for (at, (name, rights)) in keys.into_iter().enumerate() {
        let mut command = Command::new("ceph-authtool");
        command.arg(folder.join("keyring")).args((at == 0).then_some("--create-keyring")).args([
            "--gen-key",
            "-n",
            name,
        ]);
        for (of, right) in rights {
            command.args(["--cap", of, right]);
        }
        let output = command.stdin(Stdio::null()).output().map_err(failed)?;
        if !output.status.success() {
            return Err(format!("ceph-authtool: {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    Ok(())
}
