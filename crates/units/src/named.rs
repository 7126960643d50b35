/// An enum of plain variants, each with the one name that it has on screens, in settings, in plans and in
/// JSON.
#[macro_export]
macro_rules! named {
    (
        $(#[$of_enum:meta])*
        pub enum $enum:ident {
            $($(#[$of_variant:meta])* $variant:ident = $name:literal,)+
        }
    ) => {
        $(#[$of_enum])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
        pub enum $enum {
            $($(#[$of_variant])* #[serde(rename = $name)] $variant,)+
        }

        impl $enum {
            /// All of them, in the order in which they are shown.
            pub const ALL: [$enum; [$($name),+].len()] = [$($enum::$variant),+];

            /// Its name on screens, in settings and in JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)+
                }
            }
        }
    };
}
