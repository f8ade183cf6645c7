# Makes the Debian package from the folder that build_deb.py filled (MUSTER_STAGE), with the scripts in MUSTER_SCRIPTS.
# dpkg-shlibdeps finds its dependencies.
set(CPACK_PACKAGE_NAME muster)
set(CPACK_PACKAGE_VENDOR Muster)
set(CPACK_PACKAGE_FILE_NAME muster)
set(CPACK_INSTALLED_DIRECTORIES "${MUSTER_STAGE};/")
set(CPACK_PACKAGING_INSTALL_PREFIX /)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed training daemon for LibTorch models")
set(CPACK_PACKAGE_DESCRIPTION
"Muster trains LibTorch models on a cluster of processes, in C++, without
Python in any of them. Each process is one task of a TF_CONFIG cluster.
.
The package has the programs, LibTorch for CPUs, and a template unit that
runs a task of a job under systemd.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${CPACK_PACKAGE_CONTACT}")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${MUSTER_STAGE}/usr/lib/muster)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "systemd (>= 250), dataset-fashion-mnist, openssh-client")
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)  # LibTorch takes ten times as long with xz. dpkg of Debian 12 reads both.
set(CPACK_STRIP_FILES OFF)  # They are stripped.
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${MUSTER_SCRIPTS}/postinst ${MUSTER_SCRIPTS}/prerm ${MUSTER_SCRIPTS}/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
