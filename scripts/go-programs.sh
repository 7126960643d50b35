# Shared by scripts that run programs of Kubernetes; source it in the root of the repository.
# shellcheck shell=bash disable=SC2034

helm_version=v3.22.0
kubernetes_version=v1.37.2
go_programs=${XDG_CACHE_HOME:-$HOME/.cache}/hugeleaf-tools
helm=$go_programs/helm-$helm_version
# kubelet, kube-apiserver or kubectl, by the name of a link to it.
kubernetes=$go_programs/kubernetes-$kubernetes_version

# Builds a program into the cache by a command that writes the file "$built". Prints the reason if that is impossible.
# The build's own cache is kept until it succeeds, so that an interrupted build continues.
go_program() { # FILE COMMAND…
    local file=$1 name said built
    name=$(basename "$file")
    if ! command -v go >/dev/null; then
        echo "$name is not installed, and there is no Go to build it with"
        return
    fi
    built=$go_programs/building-$name/program
    mkdir -p "$(dirname "$built")"
    if said=$(export built GOCACHE="$go_programs/building-$name/cache" CGO_ENABLED=0 GOFLAGS=-modcacherw && "${@:2}" 2>&1 </dev/null); then
        mv "$built" "$file"
        rm -rf "$go_programs/building-$name"
    else
        echo "$name cannot be built: $(tail -n 1 <<<"$said")"
    fi
}

build_helm() {
    GOBIN=$(dirname "$built") go install -trimpath -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=$helm_version" \
        "helm.sh/helm/v3/cmd/helm@$helm_version" && mv "$(dirname "$built")/helm" "$built"
}

# One package at a time: each needs up to a gigabyte.
build_kubernetes() {
    local version=k8s.io/component-base/version numbers
    IFS=. read -ra numbers <<<"${kubernetes_version#v}"
    (cd lab/vm/go/kubernetes && nice go build -p 1 -trimpath -o "$built" \
        -ldflags "-s -w -X $version.gitVersion=$kubernetes_version -X $version.gitMajor=${numbers[0]} -X $version.gitMinor=${numbers[1]}" .)
}

# Sets `helm` to Helm of the tested version, from PATH or built within five minutes. Prints the reason if it cannot be had.
need_helm() {
    local is='{{.Version}}'
    [ "$("$helm" version --template "$is" 2>/dev/null)" != "$helm_version" ] || return 0
    if [ "$(helm version --template "$is" 2>/dev/null)" = "$helm_version" ]; then
        helm=$(command -v helm)
    else
        go_program "$helm" build_helm
    fi
}
