# Toolchain for the other architecture, x86-64 on aarch64 and the reverse: Debian's cross compiler,
# libraries that scripts/sysroot has fetched into DELTAWIRE_SYSROOT, programs run by qemu-user.
set(DELTAWIRE_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build-emulated/sysroot" CACHE PATH "Where scripts/sysroot unpacked")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DELTAWIRE_SYSROOT)
get_filename_component(sysroot ${DELTAWIRE_SYSROOT} REALPATH)

set(CMAKE_SYSTEM_NAME Linux)
if(CMAKE_HOST_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(CMAKE_SYSTEM_PROCESSOR aarch64)
else()
  set(CMAKE_SYSTEM_PROCESSOR x86_64)
endif()
set(triple ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
set(CMAKE_C_COMPILER ${triple}-gcc)
set(CMAKE_CXX_COMPILER ${triple}-g++)
set(CMAKE_ASM_COMPILER ${triple}-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE ${triple})
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${sysroot}/usr/lib/${triple}:${sysroot}/lib/${triple}")

set(CMAKE_FIND_ROOT_PATH ${sysroot})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${sysroot}/usr/lib/${triple}/pkgconfig:${sysroot}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${sysroot})
# Every instruction set that it can emulate: AVX2 and NEON are among them, AVX-512 is not.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-${CMAKE_SYSTEM_PROCESSOR} -cpu max -L ${sysroot})
