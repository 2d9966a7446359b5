# Programs and extensions that need nothing but glibc 2.28 or newer: what scripts/portable made is linked, and archives
# in the place of shared libraries. For wheels; everything else is linked as Debian does.
set(DELTAWIRE_PORTABLE "" CACHE PATH "Folder that scripts/portable made; empty: link this machine's libraries")
if(DELTAWIRE_PORTABLE)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a) # until the end of dependencies.cmake
  set(OPENSSL_USE_STATIC_LIBS ON)
  set(ENV{PKG_CONFIG_PATH} ${DELTAWIRE_PORTABLE}/lib/pkgconfig)
  include_directories(BEFORE SYSTEM ${DELTAWIRE_PORTABLE}/include) # before a sysroot's, which has another httplib.h
endif()

# deltawire_portable(TARGET): for what is put into a wheel.
function(deltawire_portable target)
  if(DELTAWIRE_PORTABLE)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/glibc_2_28.c)
    # libgcc_s is the system's, and names symbols of this machine's glibc. gold, because GNU ld 2.40 writes a relocation of
    # no type into programs that are linked so, which no loader takes.
    target_link_options(${target} PRIVATE -B${DELTAWIRE_PORTABLE}/lib -L${DELTAWIRE_PORTABLE}/lib -fuse-ld=gold
                        -static-libstdc++ -shared-libgcc -Wl,--allow-shlib-undefined,--exclude-libs,ALL
                        -Wl,--push-state,--no-as-needed,-lpthread,-ldl,-lrt,-lm,--pop-state) # of their own until glibc 2.34
  endif()
endfunction()
