# What CUDA loads for a program of the device text: the PTX of the tree, and with QPLAN_CUDA_ARCHS a
# fat binary of machine code, which ptxas makes of that PTX: the same kernels without the time that a
# driver takes to compile them.
if(QPLAN_CUDA_ARCHS)
  find_program(PTXAS ptxas REQUIRED)
  find_program(FATBINARY fatbinary REQUIRED)
endif()

# The file of the PTX, and of the fat binary or "".
function(cuda_images program ptx_out sass_out)
  set(ptx ${CMAKE_SOURCE_DIR}/kernels/gpu/ptx/${program}.ptx)
  if(NOT EXISTS ${ptx})
    message(FATAL_ERROR "${ptx} is missing: run scripts/ptx.sh")
  endif()
  set(${ptx_out} ${ptx} PARENT_SCOPE)
  set(${sass_out} "" PARENT_SCOPE)
  if(NOT QPLAN_CUDA_ARCHS)
    return()
  endif()
  set(fat ${CMAKE_BINARY_DIR}/${program}.fatbin)
  foreach(arch ${QPLAN_CUDA_ARCHS})
    set(cubin ${CMAKE_BINARY_DIR}/${program}-sm_${arch}.cubin)
    add_custom_command(OUTPUT ${cubin} COMMAND ${PTXAS} -arch=sm_${arch} -o ${cubin} ${ptx}
      DEPENDS ${ptx})
    list(APPEND cubins ${cubin})
    list(APPEND images "--image3=kind=elf,sm=${arch},file=${cubin}")
  endforeach()
  # As it is: drivers that are older than the toolkit may not know its way to compress.
  add_custom_command(OUTPUT ${fat}
    COMMAND ${FATBINARY} -64 --compress=false --create=${fat} ${images} DEPENDS ${cubins})
  set(${sass_out} ${fat} PARENT_SCOPE)
endfunction()
