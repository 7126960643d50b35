//! What must hold on every host, whatever its kernel, page sizes, nodes and control groups.
