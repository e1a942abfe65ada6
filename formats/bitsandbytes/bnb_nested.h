/*
 * bnb_nested.h - what the 256 codes of scales stand for that have scales of their own, ascending: a
 * sign, a leading one whose place is an exponent of ten, and an even division of what is left.
 */
#ifndef QP_FORMAT_BNB_NESTED_H
#define QP_FORMAT_BNB_NESTED_H

#include "bnb.h"

static const uint8_t nested_values[] = {
    F32(0xbf7e3333u), F32(0xbf7a999au), F32(0xbf770000u), F32(0xbf736666u), F32(0xbf6fcccdu),
    F32(0xbf6c3333u), F32(0xbf68999au), F32(0xbf650000u), F32(0xbf616666u), F32(0xbf5dcccdu),
    F32(0xbf5a3333u), F32(0xbf56999au), F32(0xbf530000u), F32(0xbf4f6666u), F32(0xbf4bcccdu),
    F32(0xbf483333u), F32(0xbf44999au), F32(0xbf410000u), F32(0xbf3d6666u), F32(0xbf39cccdu),
    F32(0xbf363334u), F32(0xbf32999au), F32(0xbf2f0000u), F32(0xbf2b6666u), F32(0xbf27cccdu),
    F32(0xbf243334u), F32(0xbf20999au), F32(0xbf1d0000u), F32(0xbf196666u), F32(0xbf15cccdu),
    F32(0xbf123334u), F32(0xbf0e999au), F32(0xbf0b0000u), F32(0xbf076666u), F32(0xbf03ccccu),
    F32(0xbf003333u), F32(0xbef93332u), F32(0xbef20000u), F32(0xbeeaccccu), F32(0xbee3999au),
    F32(0xbedc6666u), F32(0xbed53333u), F32(0xbece0000u), F32(0xbec6ccccu), F32(0xbebf999au),
    F32(0xbeb86666u), F32(0xbeb13333u), F32(0xbeaa0000u), F32(0xbea2ccccu), F32(0xbe9b999au),
    F32(0xbe946666u), F32(0xbe8d3334u), F32(0xbe860000u), F32(0xbe7d9999u), F32(0xbe6f3333u),
    F32(0xbe60cccdu), F32(0xbe526666u), F32(0xbe440000u), F32(0xbe35999au), F32(0xbe273333u),
    F32(0xbe18cccdu), F32(0xbe0a6666u), F32(0xbdf80000u), F32(0xbddb3334u), F32(0xbdc9eb85u),
    F32(0xbdc428f7u), F32(0xbdbe6667u), F32(0xbdb8a3d7u), F32(0xbdb2e148u), F32(0xbdad1eb8u),
    F32(0xbda75c2au), F32(0xbda1999au), F32(0xbd9bd70au), F32(0xbd96147bu), F32(0xbd9051ebu),
    F32(0xbd8a8f5du), F32(0xbd84cccdu), F32(0xbd7e147bu), F32(0xbd728f5du), F32(0xbd670a3du),
    F32(0xbd5b851fu), F32(0xbd500000u), F32(0xbd447ae1u), F32(0xbd38f5c3u), F32(0xbd2d70a3u),
    F32(0xbd21eb85u), F32(0xbd166667u), F32(0xbd0ae148u), F32(0xbcfeb852u), F32(0xbce7ae15u),
    F32(0xbcd0a3d7u), F32(0xbcb9999au), F32(0xbca28f5du), F32(0xbc8b851fu), F32(0xbc68f5c3u),
    F32(0xbc3ae148u), F32(0xbc1f3b64u), F32(0xbc160418u), F32(0xbc0ccccdu), F32(0xbc039581u),
    F32(0xbbf4bc6au), F32(0xbbe24dd3u), F32(0xbbcfdf3bu), F32(0xbbbd70a4u), F32(0xbbab020du),
    F32(0xbb989374u), F32(0xbb8624ddu), F32(0xbb676c8au), F32(0xbb428f5cu), F32(0xbb1db22du),
    F32(0xbaf1a9fcu), F32(0xbaa7ef9du), F32(0xba7765ffu), F32(0xba59e83eu), F32(0xba3c6a80u),
    F32(0xba1eecc1u), F32(0xba016f01u), F32(0xb9c7e283u), F32(0xb98ce705u), F32(0xb923d70bu),
    F32(0xb8ba1f4bu), F32(0xb88aefb3u), F32(0xb8378034u), F32(0xb7b24206u), F32(0xb70205ffu),
    F32(0xb65a1a94u), F32(0xb513a3b7u), F32(0x00000000u), F32(0x3513a3b7u), F32(0x365a1a94u),
    F32(0x370205ffu), F32(0x37b24206u), F32(0x38378034u), F32(0x388aefb3u), F32(0x38ba1f4bu),
    F32(0x3923d70bu), F32(0x398ce705u), F32(0x39c7e283u), F32(0x3a016f01u), F32(0x3a1eecc1u),
    F32(0x3a3c6a80u), F32(0x3a59e83eu), F32(0x3a7765ffu), F32(0x3aa7ef9du), F32(0x3af1a9fcu),
    F32(0x3b1db22du), F32(0x3b428f5cu), F32(0x3b676c8au), F32(0x3b8624ddu), F32(0x3b989374u),
    F32(0x3bab020du), F32(0x3bbd70a4u), F32(0x3bcfdf3bu), F32(0x3be24dd3u), F32(0x3bf4bc6au),
    F32(0x3c039581u), F32(0x3c0ccccdu), F32(0x3c160418u), F32(0x3c1f3b64u), F32(0x3c3ae148u),
    F32(0x3c68f5c3u), F32(0x3c8b851fu), F32(0x3ca28f5du), F32(0x3cb9999au), F32(0x3cd0a3d7u),
    F32(0x3ce7ae15u), F32(0x3cfeb852u), F32(0x3d0ae148u), F32(0x3d166667u), F32(0x3d21eb85u),
    F32(0x3d2d70a3u), F32(0x3d38f5c3u), F32(0x3d447ae1u), F32(0x3d500000u), F32(0x3d5b851fu),
    F32(0x3d670a3du), F32(0x3d728f5du), F32(0x3d7e147bu), F32(0x3d84cccdu), F32(0x3d8a8f5du),
    F32(0x3d9051ebu), F32(0x3d96147bu), F32(0x3d9bd70au), F32(0x3da1999au), F32(0x3da75c2au),
    F32(0x3dad1eb8u), F32(0x3db2e148u), F32(0x3db8a3d7u), F32(0x3dbe6667u), F32(0x3dc428f7u),
    F32(0x3dc9eb85u), F32(0x3ddb3334u), F32(0x3df80000u), F32(0x3e0a6666u), F32(0x3e18cccdu),
    F32(0x3e273333u), F32(0x3e35999au), F32(0x3e440000u), F32(0x3e526666u), F32(0x3e60cccdu),
    F32(0x3e6f3333u), F32(0x3e7d9999u), F32(0x3e860000u), F32(0x3e8d3334u), F32(0x3e946666u),
    F32(0x3e9b999au), F32(0x3ea2ccccu), F32(0x3eaa0000u), F32(0x3eb13333u), F32(0x3eb86666u),
    F32(0x3ebf999au), F32(0x3ec6ccccu), F32(0x3ece0000u), F32(0x3ed53333u), F32(0x3edc6666u),
    F32(0x3ee3999au), F32(0x3eeaccccu), F32(0x3ef20000u), F32(0x3ef93332u), F32(0x3f003333u),
    F32(0x3f03ccccu), F32(0x3f076666u), F32(0x3f0b0000u), F32(0x3f0e999au), F32(0x3f123334u),
    F32(0x3f15cccdu), F32(0x3f196666u), F32(0x3f1d0000u), F32(0x3f20999au), F32(0x3f243334u),
    F32(0x3f27cccdu), F32(0x3f2b6666u), F32(0x3f2f0000u), F32(0x3f32999au), F32(0x3f363334u),
    F32(0x3f39cccdu), F32(0x3f3d6666u), F32(0x3f410000u), F32(0x3f44999au), F32(0x3f483333u),
    F32(0x3f4bcccdu), F32(0x3f4f6666u), F32(0x3f530000u), F32(0x3f56999au), F32(0x3f5a3333u),
    F32(0x3f5dcccdu), F32(0x3f616666u), F32(0x3f650000u), F32(0x3f68999au), F32(0x3f6c3333u),
    F32(0x3f6fcccdu), F32(0x3f736666u), F32(0x3f770000u), F32(0x3f7a999au), F32(0x3f7e3333u),
    F32(0x3f800000u),
};

#endif
