/// Defines an enum of plain variants. Each variant has one name, used on screens, in settings, in plans
/// and in JSON.
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
            /// All variants, in display order.
            pub const ALL: [$enum; [$($name),+].len()] = [$($enum::$variant),+];

            /// Returns the name used on screens, in settings and in JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)+
                }
            }
        }
    };
}
