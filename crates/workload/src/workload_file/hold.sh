# Run in a mount namespace by runner.rs, with the folder of a stage.
mount -t tmpfs -o mode=1777 hugeleaf /dev/shm
lay() {
    cd "$1" && mount -t tmpfs hugeleaf over && mkdir over/upper over/work && chmod 1777 over/upper &&
        mount -t overlay -o lowerdir=/tmp,upperdir=over/upper,workdir=over/work hugeleaf /tmp || return 1
    case "$(pwd -P)" in
    /tmp/*) mkdir -p "$1" && mount --no-canonicalize --bind . "$1" || { umount /tmp && return 1; } ;;
    esac
}
lay "$1" && echo both || echo shm
exec cat
