//! Devices of file systems, in trees laid out as the kernel's documents say.

use std::os::unix::fs::symlink;

use rustix::fs::makedev;

use super::*;

/// A root directory of its own, removed at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("dbdyno-places-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("sys/dev/block")).unwrap();
        fs::create_dir_all(root.join("sys/class/block")).unwrap();
        Self(root)
    }

    /// Adds a device; `path` is below `devices/block`: `sda`, `sda/sda1`.
    fn device(&self, path: &str, number: &str) -> &Self {
        let folder = self.0.join("sys/devices/block").join(path);
        fs::create_dir_all(folder.join("slaves")).unwrap();
        fs::write(folder.join("dev"), number).unwrap();
        let name = folder.file_name().unwrap().to_owned();
        if path.contains('/') {
            fs::write(folder.join("partition"), "1\n").unwrap();
        }
        symlink(
            format!("../../devices/block/{path}"),
            self.0.join("sys/class/block").join(&name),
        )
        .unwrap();
        symlink(
            format!("../../devices/block/{path}"),
            self.0.join("sys/dev/block").join(number),
        )
        .unwrap();
        self
    }

    fn on(&self, upper: &str, lower: &[&str]) -> &Self {
        for name in lower {
            let slaves = self.0.join("sys/class/block").join(upper).join("slaves");
            symlink(format!("../../{name}"), slaves.join(name)).unwrap();
        }
        self
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn devices(&self) -> Devices {
        Devices::below(&self.0)
    }

    fn stack(&self, device: &str) -> (Option<String>, Vec<String>) {
        let stack = self.devices().stack(device);
        (stack.layers, stack.disks)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

#[test]
fn a_partition_lies_on_its_disk_and_a_disk_on_nothing() {
    let tree = Tree::new("partition");
    tree.device("nvme0n1", "259:0")
        .device("nvme0n1/nvme0n1p1", "259:1");
    assert_eq!(
        tree.stack("nvme0n1p1"),
        (Some("nvme0n1p1 on nvme0n1".into()), names(&["nvme0n1"]))
    );
    assert_eq!(tree.stack("nvme0n1"), (None, vec![]));
    assert_eq!(tree.devices().name(makedev(259, 1)), Some("nvme0n1p1".to_owned()));
    assert_eq!(tree.devices().name(makedev(259, 9)), None);
}

#[test]
fn a_volume_on_a_mirror_of_two_partitions() {
    let tree = Tree::new("lvm");
    tree.device("sda", "8:0").device("sda/sda1", "8:1");
    tree.device("sdb", "8:16").device("sdb/sdb1", "8:17");
    tree.device("md0", "9:0").on("md0", &["sda1", "sdb1"]);
    tree.device("dm-0", "253:0").on("dm-0", &["md0"]);
    tree.file("sys/devices/block/dm-0/dm/name", "vg-pg\n");
    let layers = "dm-0 (vg-pg) on md0 on (sda1 on sda, sdb1 on sdb)";
    assert_eq!(tree.stack("dm-0"), (Some(layers.into()), names(&["sda", "sdb"])));
    assert_eq!(
        tree.devices().of_source("/dev/mapper/vg-pg"),
        Some("dm-0".to_owned())
    );
}

#[test]
fn two_volumes_on_one_disk_name_it_once() {
    let tree = Tree::new("stripes");
    tree.device("sda", "8:0")
        .device("sda/sda1", "8:1")
        .device("sda/sda2", "8:2");
    tree.device("md0", "9:0").on("md0", &["sda1", "sda2"]);
    assert_eq!(tree.stack("md0").1, names(&["sda"]));
}

#[test]
fn bcache_has_its_cache_below_and_a_name_with_a_slash_is_the_kernels() {
    let tree = Tree::new("bcache");
    tree.device("nvme0n1", "259:0").device("cciss!c0d0", "104:0");
    tree.device("bcache0", "252:0")
        .on("bcache0", &["cciss!c0d0", "nvme0n1"]);
    let layers = "bcache0 on (cciss/c0d0, nvme0n1)";
    assert_eq!(
        tree.stack("bcache0"),
        (Some(layers.into()), names(&["cciss/c0d0", "nvme0n1"]))
    );
}

#[test]
fn devices_that_lie_on_each_other_end() {
    let tree = Tree::new("cycle");
    tree.device("dm-0", "253:0")
        .device("dm-1", "253:1")
        .device("sda", "8:0");
    tree.on("dm-0", &["dm-1", "sda"]).on("dm-1", &["dm-0"]);
    assert_eq!(tree.stack("dm-0").1, names(&["dm-1", "sda"]));
}

#[test]
fn wide_and_deep_stacks_are_bounded() {
    let tree = Tree::new("bounds");
    for n in 0..40 {
        tree.device(&format!("dm-{n}"), &format!("253:{n}"));
    }
    for n in 0..39 {
        let below: Vec<String> = (n + 1..40).map(|m| format!("dm-{m}")).collect();
        tree.on(
            &format!("dm-{n}"),
            &below.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    }
    let (layers, disks) = tree.stack("dm-0"); // paths through it number 2^38
    assert!(layers.unwrap().len() < 1 << 20 && disks.len() < 300);
}

#[test]
fn names_that_no_kernel_gives_are_none() {
    let tree = Tree::new("names");
    tree.device("sda", "8:0");
    tree.file("sys/class/block/sda/slaves/a, b", "")
        .file(&format!("sys/class/block/sda/slaves/{}", "x".repeat(200)), "");
    assert_eq!(tree.stack("sda"), (None, vec![]));
    assert_eq!(tree.devices().of_source("/dev/../etc/passwd"), None);
    assert_eq!(tree.devices().of_source("tank/pg"), None);
}

#[test]
fn without_sysfs_the_table_of_the_kernel_has_the_name() {
    let tree = Tree::new("diskstats");
    tree.file(
        "proc/diskstats",
        "   8       0 sda 1 2 3\n   8       1 sda1 1 2 3\n",
    );
    assert_eq!(tree.devices().name(makedev(8, 1)), Some("sda1".to_owned()));
}

#[test]
fn flushes_are_counted_where_there_are_requests() {
    let tree = Tree::new("flushes");
    tree.device("sda", "8:0")
        .device("sda/sda1", "8:1")
        .device("dm-0", "253:0");
    tree.file("sys/devices/block/sda/mq/0/cpu_list", "0");
    let counted = |name| tree.devices().counts_flushes(name);
    assert!(counted("sda") && !counted("sda1") && !counted("dm-0"));
}

fn on(line: &str, number: u64, tree: &Tree, upper: Upper) -> (Vec<String>, String) {
    let mount = mountinfo::entries(line).next().unwrap();
    let (stacks, status) = on_mount(&mount, number, &tree.devices(), upper, DEEPEST);
    (stacks.into_iter().map(|s| s.device).collect(), status)
}

const NOWHERE: Upper = &|_| None;

#[test]
fn file_systems_without_a_device_are_named() {
    let tree = Tree::new("none");
    for (kind, source) in [
        ("tmpfs", "tmpfs"),
        ("nfs4", "nas:/export"),
        ("cifs", "//nas/x"),
        ("fuse.sshfs", "dba@db:/"),
        ("9p", "hostshare"),
        ("virtiofs", "share"),
        ("zfs", "tank/pg"),
        ("overlay", "overlay"),
        ("btrfs", "/dev/unknown"),
    ] {
        let line = format!("36 35 0:40 / /data rw - {kind} {source} rw");
        let (devices, status) = on(&line, makedev(0, 40), &tree, NOWHERE);
        assert_eq!((devices, status), (vec![], format!("no device: {kind}")));
    }
}

#[test]
fn a_subvolume_is_on_all_devices_of_its_file_system() {
    let tree = Tree::new("btrfs");
    tree.device("sda", "8:0")
        .device("sdb", "8:16")
        .device("sdc", "8:32");
    tree.file("sys/fs/btrfs/1b2c/devices/sda", "")
        .file("sys/fs/btrfs/1b2c/devices/sdb", "");
    tree.file("sys/fs/btrfs/features/x", "")
        .file("sys/fs/btrfs/77aa/devices/sdc", "");
    let line = "36 35 0:40 /pg /data rw shared:1 - btrfs /dev/sdb rw,subvol=/pg";
    assert_eq!(
        on(line, makedev(0, 51), &tree, NOWHERE),
        (names(&["sdb", "sda"]), "ok".to_owned())
    );
}

#[test]
fn an_overlay_writes_to_its_upper_directory() {
    let tree = Tree::new("overlay");
    tree.device("sda", "8:0");
    let line =
        r"36 35 0:40 / / rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/var/lib/a\040b/diff,workdir=/w";
    let upper = |path: &str| {
        assert_eq!(path, "/var/lib/a b/diff");
        let mounts = "1 0 8:0 / / rw - ext4 /dev/sda rw\n".to_owned();
        Some((makedev(8, 0), "1".to_owned(), mounts))
    };
    assert_eq!(
        on(line, makedev(0, 40), &tree, &upper),
        (names(&["sda"]), "ok".to_owned())
    );
    let itself = |_: &str| Some((makedev(0, 40), "36".to_owned(), line.to_owned()));
    assert_eq!(on(line, makedev(0, 40), &tree, &itself).1, "no device: overlay");
}

fn spec(paths: &[&str]) -> PlaceSpec {
    PlaceSpec {
        place: "data".into(),
        paths: paths.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn paths_and_labels_of_a_hostile_server_are_refused() {
    assert!(PlaceSpec::check(&[spec(&["/data", "."])]).is_ok());
    assert!(PlaceSpec::check(&[spec(&[&"x".repeat(5000)])]).is_err());
    assert!(PlaceSpec::check(&[spec(&["/a\nb"])]).is_err());
    assert!(PlaceSpec::check(&vec![spec(&["/a"]); 65]).is_err());
    assert!(PlaceSpec::check(&[spec(&["/a", "/b", "/c", "/d", "/e"])]).is_err());
    let up = Places::look(&[spec(&["/tmp/../etc"])], None);
    assert_eq!(up.places[0].status, "not permitted");
}

#[test]
fn links_and_directories_of_this_process_are_followed() {
    let tree = Tree::new("links");
    symlink(&tree.0, tree.0.join("wal")).unwrap();
    let here = |path: PathBuf| {
        Places::look(
            &[spec(&[path.to_str().unwrap()])],
            Some(i64::from(std::process::id())),
        )
    };
    let (real, link) = (here(tree.0.clone()), here(tree.0.join("wal")));
    assert_eq!(real.places[0].status, link.places[0].status);
    assert_eq!(real.places[0].filesystem, link.places[0].filesystem);
    assert!(real.places[0].filesystem.is_some());
    let (later, lost) = (here(tree.0.join("base/later")), here(tree.0.join("a/b/c/d")));
    assert_eq!(later.places[0].filesystem, real.places[0].filesystem);
    assert_eq!(lost.places[0].status, "vanished");
}

/// The mounts of a server whose directories may not be looked at.
fn closed(mounts: &str) -> World {
    World {
        root: None,
        directory: None,
        mounts: mounts.to_owned(),
        closed: true,
    }
}

#[test]
fn the_longest_mount_point_stands_for_a_directory_that_may_not_be_looked_at() {
    let tree = Tree::new("assumed");
    tree.device("sda", "8:0")
        .device("sdb", "8:16")
        .device("sdc", "8:32");
    let world = closed(
        "1 0 8:0 / / rw - ext4 /dev/sda rw\n\
         2 1 8:16 / /srv/db\\040data rw - xfs /dev/sdb rw\n\
         3 2 8:0 / /srv/db\\040data/base rw - ext4 /dev/sda rw\n\
         4 2 8:32 / /srv/db\\040data/base rw - ext4 /dev/sdc rw\n\
         5 2 0:44 / /srv/db\\040data/tmp rw - tmpfs tmpfs rw\n",
    );
    for (path, device, status) in [
        ("/srv/db data/wal", Some("sdb"), "assumed"),
        ("/srv/db data/.", Some("sdb"), "assumed"),
        ("/srv/db data/base/tmp", Some("sdc"), "assumed"),
        ("/srv/db data2", Some("sda"), "assumed"),
        ("/srv/db data/tmp/x", None, "no device: tmpfs"),
        ("/srv/db data/../x", None, "not permitted"),
        ("wal", None, "not permitted"),
    ] {
        let places = world.find(&spec(&[path]), &tree.devices());
        let stack = places[0].stack.as_ref().map(|s| s.device.as_str());
        assert_eq!((stack, places[0].status.as_str()), (device, status), "{path}");
    }
    // to look at `data/.` takes the right to look into `data`
    assert_eq!(world.absolute(Path::new("/data/.")).unwrap().as_os_str(), "/data");
    assert_eq!(
        closed("").find(&spec(&["/data"]), &tree.devices())[0].status,
        "not permitted"
    );
}

#[test]
fn a_process_in_no_reach_and_one_that_is_gone() {
    let gone = Places::look(&[spec(&["wal"])], Some(i64::from(i32::MAX)));
    assert_ne!(gone.places[0].status, "ok");
    assert_eq!(gone.devices(), Vec::<String>::new());
    assert_eq!(gone.table().rows(), 1);
}
