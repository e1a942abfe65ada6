"""The class of every layout, for all that walk over them: the rows of the table, and the first inputs
of the fuzz targets. A row asks the program which layouts there are: one without a class fails.
"""

import layout_awq
import layout_bitsandbytes
import layout_comfyui
import layout_compressed_tensors
import layout_fp8
import layout_gptq
import layout_mlx
import layout_modelopt
import layout_mxfp4
import layout_qplan

LAYOUTS = [layout_qplan.Layout(), layout_compressed_tensors.Layout(), layout_gptq.Layout(),
           layout_gptq.LayoutV2(), layout_awq.Layout(), layout_bitsandbytes.Layout(),
           layout_mlx.Layout(), layout_comfyui.Layout(),
           layout_fp8.Layout(), layout_modelopt.Layout(), layout_mxfp4.Layout()]
