# cpack -G DEB: the program, the static library, headers and find_package(deltawire) for Debian.
# Python is not in it: its package is a wheel.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME deltawire)
set(CPACK_PACKAGE_VENDOR deltawire)
set(CPACK_PACKAGE_CONTACT "deltawire maintainers <maintainers@deltawire.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "keeps inference replicas bit-identical to a trainer")
set(CPACK_PACKAGE_DESCRIPTION "deltawire ships only the weights that changed, through a chain of versions in a
 folder or an S3 bucket. The package holds the program, the static library and its headers.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates) # of https:// in front of a bucket
# What the static library leaves to the programs that link it.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
    "libhwy-dev, libzstd-dev, libxxhash-dev, libssl-dev, libcurl4-openssl-dev, libexpat1-dev, pkg-config")
include(CPack)
