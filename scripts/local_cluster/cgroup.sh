# shellcheck shell=bash
# shellcheck disable=SC2154 # the sourcing script sets what is named below
# Device cgroups of a cluster, of version 1 or 2: what the machine and Slurm have, the folder of each host, and the end.
# Reads repository, cluster_name, cluster_state, slurm_prefix, and what choose_cgroups sets: cgroup_version, device_cgroup.

# Cgroups of cluster NAME are in this-NAME, just below the mount point of their hierarchy: without a folder shared by
# clusters, one cluster's cleanup cannot meet another's start.
readonly cgroup_prefix=slurm-bootstrap-

# The first mount point of type $1 whose file system options have the word $2; empty if the machine has none.
cgroup_mount() {
  awk -v type="$1" -v word="$2" '{ for (i = 7; i < NF && $i != "-"; i++); }
    $(i + 1) == type && ("," $NF ",") ~ ("," word ",") { print $5; exit }' /proc/self/mountinfo
}

# The mount point of the hierarchy in which version $1 constrains devices.
device_hierarchy() {
  if [[ $1 == v1 ]]; then cgroup_mount cgroup devices; else cgroup_mount cgroup2 '.*'; fi
}

# Slurm may be built without one of its plugins.
slurm_has_plugin() {
  compgen -G "$slurm_prefix/lib*/*/$1.so" >/dev/null || compgen -G "$slurm_prefix/lib*/*/*/$1.so" >/dev/null
}

# True where the kernel shows processes in hierarchies of version 1, too.
machine_has_version_1() {
  grep -qv '^0::' /proc/self/cgroup
}

# Prints why devices cannot be constrained by cgroups of version $1; nothing where they can.
obstacle_to() {
  if [[ -z $(device_hierarchy "$1") ]]; then
    [[ $1 == v2 ]] && echo "this machine has no cgroup2 mount" || echo "this machine has no cgroup v1 devices controller"
  elif ! slurm_has_plugin "cgroup_$1"; then
    echo "this Slurm was built without its plugin cgroup/$1"
  elif [[ $1 == v2 ]] && ! grep -qw __cgroup_bpf_check_dev_permission /proc/kallsyms; then
    echo "this kernel was built without CONFIG_CGROUP_BPF"
  elif [[ $1 == v2 ]] && machine_has_version_1 && ! command -v cc >/dev/null; then
    echo "this machine has cgroup v1, too, for which a C compiler is needed, and there is no cc"
  fi
}

# Sets cgroup_version to v1 or v2 where it is `any`, and device_cgroup to the folder of this cluster.
choose_cgroups() {
  local version reason reasons='' advice="leave the option out"
  device_cgroup=''
  [[ -n $cgroup_version ]] || return 0
  for version in v2 v1; do
    [[ $cgroup_version == any || $cgroup_version == "$version" ]] || continue
    reason=$(obstacle_to "$version")
    if [[ -z $reason ]]; then
      cgroup_version=$version
      device_cgroup=$(device_hierarchy "$version")/$cgroup_prefix$cluster_name
      return
    fi
    reasons+=", $reason"
  done
  [[ $cgroup_version == any ]] || advice="say --constrain-devices, which takes the version that works"
  fail "looked for device cgroups for --constrain-devices$reasons; $advice"
}

write_cgroup_conf() {
  cat >"$cluster_state/etc/cgroup.conf" <<TEXT
CgroupPlugin=cgroup/${cgroup_version:-v1}
CgroupMountpoint=/sys/fs/cgroup
ConstrainDevices=$([[ -n $cgroup_version ]] && echo yes || echo no)
ConstrainCores=no
ConstrainRAMSpace=no
ConstrainSwapSpace=no
TEXT
  [[ $cgroup_version == v2 ]] || return 0
  # There is no systemd on a host to ask for a scope.
  echo IgnoreSystemd=yes >>"$cluster_state/etc/cgroup.conf"
  ! machine_has_version_1 || build_filter
}

# Slurm refuses cgroup/v2 where /proc/self/cgroup shows a hierarchy of version 1, even an empty one.
build_filter() {
  local place filter=$cluster_state/version_2_alone.so
  cc -shared -fPIC -O1 -o "$filter" "$repository/scripts/local_cluster/version_2_alone.c"
  for place in "${!slurmd_variables[@]}"; do
    [[ ${slurmd_variables[place]} != LD_PRELOAD=* ]] || filter="${slurmd_variables[place]#*=} $filter"
  done
  slurmd_variables+=("LD_PRELOAD=$filter")
}

# True where host $1 has a cgroup namespace of its own.
has_version_2() {
  [[ $cgroup_version == v2 && $1 != head ]]
}

# Puts this process into the cgroup of host $1, which becomes the root of the namespace that the host begins with.
enter_cgroup() {
  mkdir -p "$device_cgroup/$1"
  echo 0 >"$device_cgroup/$1/cgroup.procs"
}

# Version 1. The devices hierarchy that Slurm sees is a folder of ours, in which the machine's cgroup of this host is
# mounted: Slurm names its cgroups after the node, or not even that without --enable-multiple-slurmd, so two clusters would
# share them. `release_agent`, which exists in true roots only, is the file by which Slurm's cgroup/v1 recognises a hierarchy.
show_hierarchy_1() {
  local real=$1 folder=/sys/fs/cgroup/devices file name
  mount -t tmpfs -o mode=755,nosuid,nodev cgroup /sys/fs/cgroup
  mkdir -p "$folder"
  : >"$folder/release_agent"
  for file in cgroup.procs tasks notify_on_release cgroup.clone_children; do
    : >"$folder/$file"
    mount --bind "$real/$file" "$folder/$file"
  done
  for name in slurm "slurm_$host"; do
    mkdir -p "$real/$name" "$folder/$name"
    mount --bind "$real/$name" "$folder/$name"
  done
}

# Version 2. In the host's cgroup namespace a mount shows the host's cgroup as the root. The host's daemons are where systemd
# would have put slurmd, because a cgroup with processes cannot give controllers to those below it.
show_hierarchy_2() {
  mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 /sys/fs/cgroup
  mkdir -p /sys/fs/cgroup/system.slice/slurmd.service
  echo 0 >/sys/fs/cgroup/system.slice/slurmd.service/cgroup.procs
}

# Version 2. From 24.11 on slurmd takes the root from process 1, which is that of the cluster and in no cgroup of the host.
show_process_1() {
  local file
  echo '0::/' >"$1/cgroup.1"
  cat /proc/self/mountinfo >"$1/mountinfo.1"
  for file in cgroup mountinfo; do
    mount --bind "$1/$file.1" "/proc/1/$file"
  done
}

# Removes the cgroups of the selected cluster, whatever their version was.
remove_cgroups() {
  local version mount folder attempt
  for version in v1 v2; do
    mount=$(device_hierarchy "$version")
    folder=$mount/$cgroup_prefix$cluster_name
    [[ -n $mount && -d $folder ]] || continue
    # A cgroup can be removed only once the kernel has let go of its last dead process, some time after its end.
    for attempt in {1..50}; do
      find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [[ -d $folder ]] || break
      sleep 0.1
    done
    [[ ! -d $folder ]] || say "cannot remove cgroups of cluster $cluster_name: $folder is still in use after $attempt attempts; rmdir it later"
  done
}
